module github.com/gpurec/gpurec

go 1.25

require (
	github.com/NVIDIA/go-nvml v0.13.4-1
	github.com/apache/arrow/go/v15 v15.0.2
	github.com/klauspost/compress v1.20.4
	github.com/spf13/pflag v1.1.0
)
