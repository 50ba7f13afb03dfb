"""The ground on which all rooms stand; each of its modules is a door of its own."""
