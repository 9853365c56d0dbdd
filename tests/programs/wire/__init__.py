"""Programs about Kafka's protocol: message schemas, traces, suites of Kafka clients."""
