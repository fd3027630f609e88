// A pattern of sixteen rows, over and over.
const float4 row = TABLE[i & 15u];
value = floorf(x * 16.0f + row.w) * 0.0625f;
