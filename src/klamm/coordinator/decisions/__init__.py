"""What a request or a timer means for a group: facts in, a plan out."""
