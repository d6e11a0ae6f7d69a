"""What the stories are called: apart from them, so that a command line is refused at once."""

STORY_NAMES = ("startup-race",)
