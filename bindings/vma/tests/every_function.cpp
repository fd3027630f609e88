// The same program in C++: what one may write, the other may.
#include "every_function.c"
