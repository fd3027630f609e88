// One row by value.
const float4 row = TABLE[((unsigned int)(x * 16777216.0f) * 2654435761u >> 8u) % rows];
value = row.x + row.y * x;
