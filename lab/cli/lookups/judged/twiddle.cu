// Rows at strides that double, as a transform reads its roots.
for (unsigned int stride = 1u; stride < rows; stride *= 2u) {
    const float4 row = TABLE[(i * stride) % rows];
    value = value * row.x + row.y * x;
}
