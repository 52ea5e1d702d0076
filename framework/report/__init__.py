"""Reports on runs: a table, a picture for each metric, and a page that needs nothing else.

Whatever the runs did, or still do: all is read from the files of the run directories, and nothing is written there.
"""
