"""What happens to a group: each request and each timer reads it, decides, changes it, stores it and answers."""
