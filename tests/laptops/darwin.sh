#!/bin/sh
# Run a command as on a Mac: `sh tests/laptops/darwin.sh pytest ...`. Its Pythons lack what that of
# macOS lacks (darwin/sitecustomize.py), there is no /proc, and root's override is taken away.
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/darwin${PYTHONPATH:+:$PYTHONPATH}"

if [ "$1" = --inside ]; then
    # What lists descriptors stays, as macOS has it too. Only sitecustomize.py looks at /mnt/proc.
    shift
    mount -t tmpfs none /mnt && mkdir /mnt/proc /mnt/dev &&
        mount --bind /proc /mnt/proc && mount --rbind /dev /mnt/dev &&
        mount -t tmpfs -o mode=755 none /dev && ln -s /mnt/dev/pts /mnt/dev/ptmx /mnt/dev/shm /dev &&
        ln -s /mnt/proc/self/fd /dev/fd && umount -l /proc || exit 1
    for device in null zero full random urandom tty; do
        : > "/dev/$device" && mount --bind "/mnt/dev/$device" "/dev/$device" || exit 1
    done
    exec setpriv --reuid "${SUDO_UID:-0}" --regid "${SUDO_GID:-0}" --clear-groups --inh-caps=-all \
        --bounding-set=-dac_override,-dac_read_search "$@"
fi

root=$([ "$(id -u)" = 0 ] || echo sudo -n)
if refused=$($root unshare -m umount -l /proc 2>&1); then
    exec $root env PATH="$PATH" PYTHONPATH="$PYTHONPATH" HOME="$HOME" \
        unshare -m sh "$here/darwin.sh" --inside "$@"
fi
echo "darwin.sh: NOT without /proc, as no mount namespace can be made here: $refused" >&2
exec "$@"
