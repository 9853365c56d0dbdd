module streamlog/wire/kfake

go 1.25.0

require (
	github.com/twmb/franz-go v1.21.1
	github.com/twmb/franz-go/pkg/kadm v1.18.0
	github.com/twmb/franz-go/pkg/kfake v0.0.0-00010101000000-000000000000
	github.com/twmb/franz-go/pkg/kmsg v1.13.1
)

require (
	github.com/klauspost/compress v1.18.6 // indirect
	github.com/pierrec/lz4/v4 v4.1.26 // indirect
	golang.org/x/crypto v0.51.0 // indirect
)

replace github.com/twmb/franz-go/pkg/kfake => ./kfake
