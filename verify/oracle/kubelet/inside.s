// An assembly file, though empty, lets the compiler accept the function without a body in since_1_35.go and before_1_35.go.
