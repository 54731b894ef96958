"""Charts: bars, timelines and levels over time, as text for a terminal and as image files."""
