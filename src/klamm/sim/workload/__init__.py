"""What operators, tools and brokers do while faults happen, by subject; `verbs` lists it all."""
