// An assembly file, though empty, lets the compiler accept functions without a body: the kubelet's own, unexported ones.
