"""Sources in, price frames out: checks ticks, gives them sequences, groups them by bucket, promises the frontier."""
