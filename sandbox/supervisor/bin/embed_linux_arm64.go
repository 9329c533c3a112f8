package bin

import _ "embed"

//go:embed supervisor-linux-arm64
var program string
