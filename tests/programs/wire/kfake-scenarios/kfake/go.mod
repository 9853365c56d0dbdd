module github.com/twmb/franz-go/pkg/kfake

go 1.25.0

require (
	github.com/twmb/franz-go v1.21.1
	github.com/twmb/franz-go/pkg/kmsg v1.13.1
)
