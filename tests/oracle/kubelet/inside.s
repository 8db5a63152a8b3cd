// An assembly file, though empty, lets the compiler accept the function without a body in inside.go.
