"""Files of ready-made injection texts, ours and others', read and checked. Nothing in them is executed.

`cache_file` reads one file, `autodojo` a foreign form of it, `texts` a file or a folder with what is known of
where its texts come from.
"""
