// Neighbours read neighbouring rows.
const float4 row = TABLE[i % rows];
value = x * row.x + row.y;
