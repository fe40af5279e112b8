"""The process that the layer sits in: the native layer, the settings, the files of the report, faults that stay ours."""
