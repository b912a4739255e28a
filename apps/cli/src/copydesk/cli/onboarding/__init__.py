"""From a checkpoint to a fleet that serves it: precision plans, their search, and the stages of onboarding."""
