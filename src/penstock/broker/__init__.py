"""The shell: it puts the pure parts, the disks and the sockets together into a broker."""
