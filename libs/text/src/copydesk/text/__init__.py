"""From text to sentences and back, and edits between them."""
