// The first row that is not below, by halving. The table's first numbers rise.
var low = 0u;
var high = rows;
while (low < high) {
    let middle = (low + high) / 2u;
    if ($table[middle].x < x) {
        low = middle + 1u;
    } else {
        high = middle;
    }
}
value = f32(low);
