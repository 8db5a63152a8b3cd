#!/bin/sh
# The kubectl plugin, run by the Python that is packed with it: none is needed on this machine.
# krew links to this file, so links are followed to the folder that the archive was unpacked to.
program=$0
while [ -L "$program" ]; do
  target=$(readlink "$program")
  case $target in
    /*) program=$target ;;
    *) program=${program%/*}/$target ;;
  esac
done
case $program in
  */*) folder=${program%/*} ;;
  *) folder=. ;;
esac
exec "$folder/python/bin/PYTHON" -I -c "from topomend.cli.ENTRY" "$@"
