// Package allow decides which templates, networks and images a tenant may use, by lists of the operator:
//
//	tenants:
//	  acme:                            # "*" for the tenants without an entry
//	    templates: [default, "doc*"]
//	    networks: [none]
//	    images: ["docker.io/library/*"]
//
// A list that is left out restricts nothing, except that no list of images keeps those away that make the engine call an address of the
// machine's own network. A tenant without an entry may use nothing. Without a file every tenant has an entry without lists.
package allow
