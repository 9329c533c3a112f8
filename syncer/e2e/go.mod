module github.com/sluice-dev/sluice/syncer/e2e

go 1.26.0

require github.com/sluice-dev/sluice v0.0.0

require github.com/versity/versitygw v1.8.0 // indirect

replace github.com/sluice-dev/sluice => ../..
