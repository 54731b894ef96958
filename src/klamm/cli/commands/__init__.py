"""One module per group of commands: options, and what is printed. What is asked of the cluster is in `admin/`."""
