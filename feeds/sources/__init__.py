"""Where entries come from: JSON on Kafka, CSV files, scenario files, all behind one protocol."""
