// Neighbours read neighbouring rows, four times.
for (var k = 0u; k < 4u; k++) {
    let row = $table[(i + 32u * k) % rows];
    value = value * row.x + row.y * x;
}
