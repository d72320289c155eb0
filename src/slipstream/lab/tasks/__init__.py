"""What an output must be: judgements, rubrics and their checks."""
