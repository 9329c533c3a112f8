package bin

import _ "embed"

//go:embed supervisor-linux-amd64
var program string
