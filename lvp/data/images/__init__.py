"""Images: the datasets of images, their files and their batches."""
