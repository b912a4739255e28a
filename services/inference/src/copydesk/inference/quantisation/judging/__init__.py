"""What quantisation costs a model, measured on texts: errors by module, and how often the answer is the same."""
