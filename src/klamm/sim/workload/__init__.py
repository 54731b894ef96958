"""What operators, tools and brokers do while faults happen ("verbs"), by subject; `verbs` lists all."""
