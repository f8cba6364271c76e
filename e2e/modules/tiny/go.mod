module tonnage.e2e/tiny

go 1.26
