"""resize_image: fetch an image, make others of it, and store them."""
