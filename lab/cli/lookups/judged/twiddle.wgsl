// Rows at strides that double, as a transform reads its roots.
for (var stride = 1u; stride < rows; stride *= 2u) {
    let row = $table[(i * stride) % rows];
    value = value * row.x + row.y * x;
}
