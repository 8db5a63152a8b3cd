"""Types that know nothing of Kubernetes: a dictionary of bounded size, and text that a terminal and a log may show."""
