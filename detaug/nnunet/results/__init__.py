"""What can be done with a finished training's folder: export it for people without detaug, compare two of them."""
