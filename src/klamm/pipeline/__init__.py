"""Floor 6, above `spark/`: pipelines declared in a YAML file, from topics through SQL into a table or a topic."""
