"""The tests, in the rooms of what they test; what several of them share is in `helpers`."""
