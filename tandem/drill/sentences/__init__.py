"""What each sentence of a scenario does on a stage, a module for each subject."""
