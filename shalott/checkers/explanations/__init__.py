"""Why a history is not linearizable: the window that shows it, its words, and its time line."""
