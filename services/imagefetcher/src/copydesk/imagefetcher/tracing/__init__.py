"""Recording what a start-up reads: an image is run once on a device that notes every block the kernel asks for."""
