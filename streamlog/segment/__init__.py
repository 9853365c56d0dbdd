"""The files of one base offset: log, offset index, time index, transaction index; recovery."""
