// Between two neighbouring rows.
const float place = x * (float)(rows - 1u);
const unsigned int below = min((unsigned int)place, rows - 2u);
const float a = TABLE[below].x;
value = a + (TABLE[below + 1u].x - a) * (place - (float)below);
