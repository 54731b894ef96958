"""`klamm explain`: what is, since when, by which event and why, what comes next, and which command would help."""
